<?xml version="1.0" encoding="UTF-8"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="html" encoding="UTF-8"/>
  <xsl:param name="title"/>

  <xsl:template match="/list">
    <html>
      <head><title><xsl:value-of select="$title"/></title></head>
      <body>
        <h1><xsl:value-of select="$title"/></h1>
        <table>
          <tr><th>Name</th><th>Size</th><th>Changed</th></tr>
          <xsl:apply-templates select="directory"><xsl:sort select="."/></xsl:apply-templates>
          <xsl:apply-templates select="file"><xsl:sort select="."/></xsl:apply-templates>
        </table>
        <p><xsl:value-of select="count(file)"/> files, <xsl:value-of select="sum(file/@size)"/></p>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="directory">
    <tr><td><a href="{.}/"><xsl:value-of select="."/>/</a></td><td/><td><xsl:call-template name="time"/></td></tr>
  </xsl:template>

  <xsl:template match="file">
    <tr>
      <td><a href="{.}"><xsl:value-of select="."/></a></td>
      <td>
        <xsl:choose>
          <xsl:when test="@size &gt; 1048576"><xsl:value-of select="format-number(@size div 1048576, '0.0')"/>M</xsl:when>
          <xsl:when test="@size &gt; 1024"><xsl:value-of select="format-number(@size div 1024, '0')"/>K</xsl:when>
          <xsl:otherwise><xsl:value-of select="@size"/></xsl:otherwise>
        </xsl:choose>
      </td>
      <td><xsl:call-template name="time"/></td>
    </tr>
  </xsl:template>

  <xsl:template name="time">
    <xsl:value-of select="concat(substring-before(@mtime, 'T'), ' ', substring(@mtime, 12, 5))"/>
  </xsl:template>
</xsl:stylesheet>
